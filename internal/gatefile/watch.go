// SPDX-License-Identifier: Apache-2.0

package gatefile

import "github.com/fsnotify/fsnotify"

// watch receives notifications about changes in the directory from the operating system. If
// watcher is nil, there are no notifications.
type watch struct {
	watcher *fsnotify.Watcher
	events  <-chan fsnotify.Event
	errors  <-chan error
}

// watch starts watching. If that fails, changes are found by reading the directory
// periodically.
func (d *Directory) watch() watch {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Error(err, "cannot watch files, reading them periodically instead", "everySeconds", rereadAfter.Seconds())
		return watch{}
	}
	return watch{watcher: w, events: w.Events, errors: w.Errors}
}

// renew watches the directory that is currently at the path, which may have replaced the
// watched one.
func (w watch) renew(path string) {
	if w.watcher != nil {
		_ = w.watcher.Add(path) // on failure the directory does not exist, which reading it will report
	}
}

func (w watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
	}
}
