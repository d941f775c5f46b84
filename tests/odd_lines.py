"""Lines of a file with every oddity that text has, and the texts that are read from them."""

ODD = [
    b'\xef\xbb\xbfone\r\n', b'\r\n', b'\n', b'two\xe2\x80\xa8three\x85\x0b\x0c\x1c\n', b'a\x00b\n',
    b'\xff\xfe\n', b'x' * 100_000 + b'\n', b'\xef\xbb\xbf four\r\r\n', b'   \n', b'five',
]  # fmt: skip
READ = [
    'one', '', '', 'two\u2028three\ufffd\x0b\x0c\x1c', 'a\0b', '\ufffd\ufffd', 'x' * 100_000,
    '\ufeff four\r', '   ', 'five',
]  # fmt: skip
