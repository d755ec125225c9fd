"""Every figure this project publishes, one command each: `python -m benchmarks list`."""
