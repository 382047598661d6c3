"""What should each cgroup file say?"""
