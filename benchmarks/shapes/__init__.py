"""`python -m benchmarks shapes`: known densities with many modes that move, part and cross, and peers beside ours.

`truths` are the densities, `run` what one run measures, `page` the page of results, `picture` truth beside learnt.
"""
