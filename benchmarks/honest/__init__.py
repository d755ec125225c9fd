"""`python -m benchmarks honest`: models tried on known truths, as somebody would who wants to prove them wrong.

`truths` are the known densities, `simple` the usual method beside each, `measures` the figures, `scoring` the ways of
trying a model, `cases` all that is run with its targets, `page` the page of results.
"""
