"""What finished runs and tasks show when they are looked into."""
