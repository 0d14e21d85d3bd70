"""What other limits would have done: replay of recorded arrivals through the rules of the limiter."""
