"""The DRA driver: prepares and unprepares claims of pods on this node."""
