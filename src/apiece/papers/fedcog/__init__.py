"""FedCOG: Ye et al., federated learning with consensus-oriented generation."""
