"""What can stand in place of attention: convolution, LSTM, learned and pooled mixing."""
