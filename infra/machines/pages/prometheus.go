// Takes the place of web/ui/ui.go where Prometheus is built here: its makers' page comes from npm and
// is not in the module. This page is prometheus.html, with the stack's dashboard.

package ui

import (
	"embed"
	"net/http"
)

//go:embed static
var files embed.FS

// Assets are the files of the page, where web.go looks for them.
var Assets = http.FS(files)
