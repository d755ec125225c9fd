"""`python -m benchmarks speed`: times and memory against the project's targets, on one thread but for part g."""
