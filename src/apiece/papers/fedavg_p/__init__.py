"""FedAvg-P and Scaffold-P: Chen et al., sharper convergence guarantees with partial model personalization."""
