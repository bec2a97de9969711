"""What runs leave behind: folders that survive a crash, and statistics over them."""
