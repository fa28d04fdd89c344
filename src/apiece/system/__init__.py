"""The machine: files, devices, processes, ranks."""
