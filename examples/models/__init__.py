"""Networks that the example programs and the benchmarks share."""
