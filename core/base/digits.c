#include "digits.h"

#define ROW(tens)                                                                                  \
    tens, '0', tens, '1', tens, '2', tens, '3', tens, '4', tens, '5', tens, '6', tens, '7', tens,  \
        '8', tens, '9'

const char kvr_digit_pairs[200] = {
    ROW('0'), ROW('1'), ROW('2'), ROW('3'), ROW('4'),
    ROW('5'), ROW('6'), ROW('7'), ROW('8'), ROW('9'),
};
