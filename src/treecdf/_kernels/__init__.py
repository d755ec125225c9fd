"""Compiled kernels: arrays in, arrays out, no classes and no checks."""
