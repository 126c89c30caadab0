"""Which guest gets which cores, on plain values. heuristic packs by rules, and optimal by a solver."""
