"""A fitted model behind HTTP: `treecdf serve` (extra `serve`).

`limits` says how much a request may ask; `bodies` reads JSON with care; `served` makes tables of it for the model;
`answers` computes; `questions` are the plain routes, `inference` is the Open Inference Protocol; `app` puts them
together, `running` listens and stops.
"""
