"""Controllers: work queue, leader election, events, and the runtime around them."""
