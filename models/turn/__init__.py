"""Turn models: does this sound like the end of a turn?"""
