"""The benchmarks that read or write files of their own."""
