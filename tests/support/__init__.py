"""What several tests share: none of these modules is a test."""
