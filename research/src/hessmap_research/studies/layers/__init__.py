"""Studies of layers: Wu et al. 2022, "Dissecting Hessian", sections 2 to 5 and appendices F and G."""
