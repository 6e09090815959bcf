"""Studies of generalisation certificates: Wu et al. 2022, section 6 and appendix H."""
