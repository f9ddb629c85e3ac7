"""Load tests and benchmarks. They speak HTTP to a running service and import none of its parts."""
