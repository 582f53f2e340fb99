"""The networks of policies: time embedding, residual MLP, 1-D U-Net, observation encoder."""
