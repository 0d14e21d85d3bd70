"""A picture of the dashboard: a storm of the demo's clients, a real Prometheus, and the dashboard's own queries."""
