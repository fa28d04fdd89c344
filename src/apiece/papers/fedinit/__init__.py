"""FedInit: Sun et al., rethinking personalized relaxed initialization in federated learning."""
