// Added to the sources of versitygw, in its package main, by whoever builds it here:
// docker/versitygw/Dockerfile and infra/machines/go_tool.py. versitygw takes its root key from its
// environment only, and has to be told where a file system cannot keep attributes.

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/versity/versitygw/backend/meta"
)

const (
	dataFolder = "TRAINYARD_STORE_DATA" // variable with the folder of the objects
	metaFolder = "TRAINYARD_STORE_META" // variable with the folder of users and attributes
)

func init() {
	data, own := os.Getenv(dataFolder), os.Getenv(metaFolder)
	if data == "" || own == "" {
		return
	}
	refuseMinio(data)
	for _, name := range []string{"ROOT_ACCESS_KEY_ID", "ROOT_SECRET_ACCESS_KEY"} {
		key, err := os.ReadFile(os.Getenv(name + "_FILE"))
		check(err)
		check(os.Setenv(name, strings.TrimSpace(string(key))))
	}
	users, sidecar := filepath.Join(own, "users"), filepath.Join(own, "attributes")
	for _, folder := range []string{data, users, sidecar} {
		check(os.MkdirAll(folder, 0o700))
	}
	check(os.Setenv("VGW_IAM_DIR", users))
	// What has begun with files beside the objects goes on so: their attributes are nowhere else.
	begun, err := os.ReadDir(sidecar)
	check(err)
	if len(begun) > 0 || (meta.XattrMeta{}).Test(data) != nil {
		check(os.Setenv("VGW_META_SIDECAR", sidecar))
	}
}

// refuseMinio ends the program where the data is MinIO's, whose objects would be taken for others.
func refuseMinio(folder string) {
	if _, err := os.Stat(filepath.Join(folder, ".minio.sys")); err == nil {
		check(fmt.Errorf("%s holds data of MinIO (.minio.sys), which versitygw cannot read. Nothing "+
			"was changed. Set objectStore to minio, or move what is there elsewhere", folder))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
