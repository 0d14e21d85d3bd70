"""What generates parts of the Helm charts, and renders them: nothing of it is in a chart."""
