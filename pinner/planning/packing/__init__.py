"""Which guest gets which cores, on plain values. heuristic packs by rules, optimal by a solver."""
