// Added to the sources of MinIO, in package cmd, by whoever builds it here: docker/minio/Dockerfile
// and infra/machines/go_tool.py. MinIO's makers publish no release that mends what it refuses.

package cmd

import (
	"fmt"
	"net/http"
	"os"

	xhttp "github.com/minio/minio/internal/http"
	"github.com/minio/mux"
)

// dataFolder names the variable with the folder of the data. What is in there has to be MinIO's own.
const dataFolder = "TRAINYARD_STORE_DATA"

func init() {
	refuseForeignData(os.Getenv(dataFolder))
	globalMiddlewares = append([]mux.MiddlewareFunc{guardMiddleware}, globalMiddlewares...)
}

// guardMiddleware refuses requests that MinIO would serve without having checked who sends them.
func guardMiddleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isForgeable(r) {
			writeErrorResponse(r.Context(), w, errorCodes.ToAPIErr(ErrAccessDenied), r.URL)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func isForgeable(r *http.Request) bool {
	switch {
	case isRequestUnsignedTrailerV4(r) && !isRequestSignatureV4(r):
		return true // CVE-2026-40344: only a signature in the header is checked
	case len(r.Header[xhttp.AmzSnowballExtract]) > 0:
		return true // CVE-2026-41145: unpacks an archive whose signature was not checked
	}
	return false
}

// refuseForeignData ends the program where MinIO would make its own of another store's data.
func refuseForeignData(folder string) {
	entries, err := os.ReadDir(folder)
	if folder == "" || err != nil {
		return
	}
	foreign := ""
	for _, entry := range entries {
		switch entry.Name() {
		case minioMetaBucket:
			return
		case "lost+found": // of a new file system
		default:
			foreign = entry.Name()
		}
	}
	if foreign != "" {
		fmt.Fprintf(os.Stderr, "%s holds %q and no data of MinIO (%s): another store's, or files of "+
			"yours. Nothing was changed. Name the store that wrote it in objectStore, or move what "+
			"is there elsewhere\n", folder, foreign, minioMetaBucket)
		os.Exit(1)
	}
}
