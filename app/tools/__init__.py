"""Tools around runs: experiments, predictions, benchmarks, conformance, fault injection, diagnosis and launchers."""
