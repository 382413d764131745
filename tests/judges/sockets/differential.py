JUDGES = []
