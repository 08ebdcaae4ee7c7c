// SPDX-License-Identifier: Apache-2.0

package gatefile

import "github.com/fsnotify/fsnotify"

// watch is told by the operating system of what happens in the directory. A
// nil watcher is told nothing.
type watch struct {
	watcher *fsnotify.Watcher
	events  <-chan fsnotify.Event
	errors  <-chan error
}

// watch starts to watch. Where that cannot be, looking now and then has to do.
func (d *Directory) watch() watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Error(err, "cannot watch files, looking at them now and then instead", "everySeconds", rereadAfter.Seconds())
		return watch{}
	}
	return watch{watcher: w, events: w.Events, errors: w.Errors}
}

// renew watches what is at the path now: a directory that has come anew is
// another one than that which was watched.
func (w watch) renew(path string) {
	if w.watcher != nil {
		_ = w.watcher.Add(path) // or else it does not exist, which the look will tell
	}
}

func (w watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}
