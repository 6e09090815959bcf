EXAMPLES=""
def map_curvature(): pass
