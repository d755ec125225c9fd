"""`python -m benchmarks speed`: times and memory on one thread against the project's targets."""
