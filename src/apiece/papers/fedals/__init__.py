"""FedALS: Gholami and Seferoglu, generalization bounds for communication-efficient federated learning."""
