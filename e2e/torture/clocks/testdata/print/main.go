// Command print prints how far its clock has gone, as a multiple of the wall clock.
package main

import (
	"fmt"
	"time"
)

func main() {
	began := time.Now()
	wall := began.Round(0)
	for time.Since(wall) < 300*time.Millisecond { // by the wall clock
		<-time.After(time.Millisecond)
	}
	now := time.Now()
	fmt.Println(float64(now.Sub(began)) / float64(now.Round(0).Sub(wall)))
}
