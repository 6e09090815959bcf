"""Studies of students that learn a teacher on Gaussian inputs."""
