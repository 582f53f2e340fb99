"""Vision-language models as reward models: Robometer, TOPReward, RoboReward, VLAC and GVL, through transformers."""
