"""What runs on machines and in pods: copied there as files, it imports only itself."""
