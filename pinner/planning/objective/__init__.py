"""The objective by which plans are compared. measure computes its terms for a host, and of_plan those of a plan."""
