"""The DRA driver: prepares and unprepares the claims of pods on this node."""
