"""What tests share: fakes, clocks, clients. Nothing here is shipped."""
