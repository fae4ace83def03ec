"""Programs for machines and pods: copied there as files, so they import only each other."""
