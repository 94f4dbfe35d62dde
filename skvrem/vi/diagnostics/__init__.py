"""What posteriors and estimates of gradients are worth."""
